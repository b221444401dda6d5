{{ dropped_users('movies', ref('int_movies__ratings'), user='user_number') }}
