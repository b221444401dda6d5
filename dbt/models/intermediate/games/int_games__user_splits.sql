{{ config(materialized='table') }}

{{ user_splits(ref('int_games__interactions'), item='game_id') }}
