"""Where kernel and store meet: workers, resident runs, attempts, leases."""
