-- Without the texts: nothing downstream reads them yet.
select
    user_id as reviewer_id,
    parent_asin as asin,
    category,
    file,
    line,
    rating,
    '1-5' as scale,
    make_timestamptz("timestamp" * 1000) as rated_at,
    verified_purchase,
    case when helpful_vote >= 0 then helpful_vote end as helpful_votes
from {{ source('raw', 'amazon_reviews_2023') }}
