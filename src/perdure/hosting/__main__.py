"""See `perdure.hosting`."""

from __future__ import annotations

from perdure.hosting.process import main

if __name__ == "__main__":  # multiprocessing reads this file in children of steps
    main()
