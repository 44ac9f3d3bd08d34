"""What tests share: stores and servers, people and processes, pages and browsers. It has no tests.

Imported as ``from kit.stores import ...``: pytest has the folder ``tests`` on its path. A program that is started as
a process of its own gets it from `kit.paths.with_kit`.
"""
