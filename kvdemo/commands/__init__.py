"""The commands of python -m kvdemo, one noun a file; kvdemo.cli puts them together."""
