"""Commands that run the ready pipelines, one file each."""
