select user_id, item_id, rating, scale, rated_at, source_rating, source_scale from {{ ref('int_own__interactions') }}
