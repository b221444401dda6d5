{{ kept_interactions(ref('int_games__ratings')) }}
