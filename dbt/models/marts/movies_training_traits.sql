{%- set training = training_interactions(ref('int_movies__interactions'), ref('int_movies__user_splits'), user='user_number', item='movie_id') -%}
{{ user_traits(training, ref('int_movies__items'), user='user_number', item='movie_id') }}
