{{ user_traits(ref('int_movies__interactions'), ref('int_movies__items'), user='user_number', item='movie_id', key="'ml-user:' || trait_user") }}
