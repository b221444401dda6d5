{%- set training = training_interactions(ref('int_games__interactions'), ref('int_games__user_splits'), user='user_id', item='game_id') -%}
{{ user_traits(training, ref('int_games__items'), user='user_id', item='game_id') }}
