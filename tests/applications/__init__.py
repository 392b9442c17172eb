"""Programs as their owners write them; tests/unit/test_watch.py runs each in a process of its own. None of them knows kvdemo."""
