import sys

tops = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")}
print(sorted(tops - set(sys.stdlib_module_names) - {"sitecustomize", "usercustomize", "apport_python_hook"}))
