print("the text comes from elsewhere")
