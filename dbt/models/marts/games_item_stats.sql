-- Ties by the game's number.
{{ item_stats(ref('int_games__items'), ref('int_games__user_splits'), item='game_id') }}
