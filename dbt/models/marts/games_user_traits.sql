{{ user_traits(ref('int_games__interactions'), ref('int_games__items'), user='user_id', item='game_id') }}
