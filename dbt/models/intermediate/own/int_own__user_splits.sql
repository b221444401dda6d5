{{ config(materialized='table') }}

{{ user_splits(ref('int_own__interactions')) }}
