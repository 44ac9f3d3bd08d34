"""The schema's versions, one file each."""
