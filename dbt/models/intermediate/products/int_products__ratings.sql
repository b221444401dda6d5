select user_id, item_id, rating, scale, rated_at, verified_purchase
from {{ ref('int_products__reviews') }}
where reason is null
