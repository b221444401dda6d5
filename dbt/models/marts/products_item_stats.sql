{{ item_stats(ref('int_products__items'), ref('int_products__user_splits')) }}
