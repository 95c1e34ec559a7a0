SELECT sqlite_version(), (SELECT journal_mode FROM pragma_journal_mode), coalesce((SELECT token FROM counter), 0)
