"""A store for LangGraph over records: namespaces of labels, items with versions. Needs the extra `langgraph`."""
