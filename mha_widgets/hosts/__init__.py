"""What shows an explorer: ``live`` in Jupyter, and ``page``, which needs no kernel."""
