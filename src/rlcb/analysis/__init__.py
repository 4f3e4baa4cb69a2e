"""Reading run directories and comparing them; nothing here trains or needs torch."""
