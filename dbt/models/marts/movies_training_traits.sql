{%- set training = training_interactions(ref('int_movies__user_splits')) -%}
{{ user_traits(training, ref('int_movies__items'), user='user_number', item='movie_id', key="'ml-user:' || trait_user") }}
