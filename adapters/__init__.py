"""Operations, engine, stores and surfaces."""
