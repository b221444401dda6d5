{{ kept_interactions(ref('int_books__ratings')) }}
