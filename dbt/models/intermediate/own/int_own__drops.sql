select
    'own.interactions' as dataset,
    'item_without_record' as reason,
    count(*) as dropped
from {{ ref('stg_own__ratings') }}
anti join {{ ref('stg_own__items') }} using (item_id)

union all

{{ dropped_users('own', ref('int_own__ratings')) }}
