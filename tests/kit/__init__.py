"""What tests share: stores and servers, people and processes, pages and browsers. It has no tests.

Imported as ``from kit.stores import ...``: pytest has the folder ``tests`` on its path. A program in another process
gets that path from `kit.paths.with_kit`.
"""
