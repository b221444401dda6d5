-- Findings in each file of products: for people, and for the facts that snapshots note.
select
    edition,
    category,
    file,
    count(*) as records,
    count(*) - count(distinct asin) as repeated,
    count(*) filter (where title_was_page) as titles_of_pages,
    count(*) filter (where title_is_missing) as titles_missing
from {{ ref('int_amazon__records') }}
group by edition, category, file
