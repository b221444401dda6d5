select user_id, item_id, rating, scale, rated_at, verified_purchase
from {{ ref('int_books__reviews') }}
where reason is null
