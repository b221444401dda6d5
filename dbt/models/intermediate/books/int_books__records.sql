select * from {{ ref('int_amazon__records') }} where {{ is_book('category') }}
