{{ user_traits(training_interactions(ref('int_games__user_splits')), ref('int_games__items'), item='game_id') }}
