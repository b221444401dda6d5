select user_id, item_id, split from {{ ref('int_own__user_splits') }}
