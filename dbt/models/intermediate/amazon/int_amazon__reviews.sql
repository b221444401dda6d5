select
    'amazon-user:' || reviewer_id as user_id, 'asin:' || asin as item_id, '2018' as edition,
    category, file, line, rating, scale, rated_at, verified_purchase, helpful_votes
from {{ ref('stg_amazon__reviews_2018') }}
union all
select
    'amazon-user:' || reviewer_id, 'asin:' || asin, '2023',
    category, file, line, rating, scale, rated_at, verified_purchase, helpful_votes
from {{ ref('stg_amazon__reviews_2023') }}
