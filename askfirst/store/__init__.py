"""The truth: tables, the transactions over them, and the engines that run these."""
