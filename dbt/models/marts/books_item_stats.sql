{{ item_stats(ref('int_books__items'), ref('int_books__user_splits')) }}
