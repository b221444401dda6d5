select * exclude (reason, least_size) from {{ ref('int_books__catalogue') }} where reason is null
