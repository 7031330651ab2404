"""Ways in and out: go-diskq's folders, files of lines and of columns, topics of other stores."""
