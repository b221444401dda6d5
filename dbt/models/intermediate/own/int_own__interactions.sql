{{ kept_interactions(ref('int_own__ratings')) }}
