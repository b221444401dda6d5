{{ user_traits(ref('int_own__interactions'), ref('int_own__items')) }}
