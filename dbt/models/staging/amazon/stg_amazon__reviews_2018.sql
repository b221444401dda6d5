-- Without the texts: nothing downstream reads them yet.
select
    reviewer_id,
    asin,
    category,
    file,
    line,
    overall as rating,
    '1-5' as scale,
    to_timestamp(unix_review_time) as rated_at,
    verified as verified_purchase,
    try_cast(replace(json_extract_string(vote, '$'), ',', '') as bigint) as helpful_votes
from {{ source('raw', 'amazon_reviews_2018') }}
