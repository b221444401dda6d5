{{ kept_interactions(ref('int_movies__ratings'), user='user_number') }}
