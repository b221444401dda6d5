{{ item_stats(ref('int_own__items'), ref('int_own__user_splits'), item='item_id') }}
