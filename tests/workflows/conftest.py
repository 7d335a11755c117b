from hypothesis import settings

settings.register_profile("long", max_examples=3000, deadline=None)  # pytest --hypothesis-profile long
