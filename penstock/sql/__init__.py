"""SQL over topics: queries by DuckDB, and statements that make and change topics in YDB's words.

session      what `Store.sql` makes: statements one after another, each ours or DuckDB's
├─ statements, words    CREATE, ALTER and DROP TOPIC: parsed, and what their words are called here
└─ topic_table          a topic as DuckDB scans it; value_columns, pushdown: its columns, what is read
"""
