{{ user_traits(training_interactions(ref('int_own__user_splits')), ref('int_own__items')) }}
