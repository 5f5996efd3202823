"""First on the path of every Python that a step of an old version starts; Python runs the ``sitecustomize`` in it."""
