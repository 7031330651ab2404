"""Ready pipelines over topics, one file each."""
