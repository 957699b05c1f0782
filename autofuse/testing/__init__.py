"""Contract suites that implementers of a protocol run against their class."""
