"""What deploy/test-image does: builds the image, runs it without an engine, judges it."""
